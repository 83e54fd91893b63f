import { Refusal, sendData } from './answers.ts';
import { readForm } from './read-body.ts';
import { sendFile } from './send-file.ts';
import { channelId, channelOf, type ServiceCall } from './service-call.ts';

/** `POST blob`: takes a file into a channel, which is made if there is none. */
export async function uploadBlob(call: ServiceCall): Promise<void> {
  const { req, res, service } = call;
  const { file, customChannelId } = await readForm(req);
  const custom = channelId(customChannelId);
  const { id, name, bytes, type } = service.channels.transaction(() =>
    service.channels.findOrMake(call, custom).files.add(file),
  );
  const mime = type || 'application/octet-stream';
  sendData(res, [
    {
      channelId: custom,
      blobId: id,
      fileType: fileTypeOf(mime),
      fileName: name,
      size: bytes.length,
      mime,
    },
  ]);
}

function fileTypeOf(mime: string): string {
  const [kind = ''] = mime.split('/', 1);
  if (['image', 'video', 'audio'].includes(kind)) return kind.toUpperCase();
  return kind === 'text' || mime === 'application/pdf' ? 'DOCUMENT' : 'BINARY';
}

/** `GET channel-home/download`: a file that was uploaded into the channel, by its name. */
export async function downloadFile(call: ServiceCall): Promise<void> {
  const { req, res, query } = call;
  const channel = channelOf(call);
  const path = query.get('relative_path') ?? '';
  if (path === '' || /(?:^|\/)\.{1,2}(?:\/|$)|[\\\p{Cc}]|^\//u.test(path)) throw new Refusal('INVALID_PATH');
  const file = channel.files.findByName(path);
  if (!file) throw new Refusal('FILE_NOT_FOUND');
  sendFile(req, res, file);
}
