import { MIMEType } from 'node:util';

/** The parser takes so long for each part that very many would hold up all streams for seconds. */
const MAX_PARTS = 1000;

/** A body as a form (`multipart/form-data`, RFC 7578); undefined if it is none, or has more than `MAX_PARTS`. */
export async function formDataOf(body: Buffer, type: string): Promise<FormData | undefined> {
  try {
    const { essence, params } = new MIMEType(type);
    const boundary = params.get('boundary');
    if (essence !== 'multipart/form-data' || !boundary || hasMany(body, `--${boundary}`)) return undefined;
    return await new Response(new Uint8Array(body), { headers: { 'Content-Type': type } }).formData();
  } catch {
    return undefined;
  }
}

/** Whether more than `MAX_PARTS` begin with this delimiter; the last one ends the form. */
function hasMany(body: Buffer, delimiter: string): boolean {
  let count = 0;
  for (let at = body.indexOf(delimiter); at >= 0; at = body.indexOf(delimiter, at + delimiter.length)) {
    count += 1;
    if (count > MAX_PARTS + 1) return true;
  }
  return false;
}
