import { once } from 'node:events';
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from 'node:http2';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { FORM_TYPE } from '../harness/clients/forms.ts';
import { until } from '../harness/clock/until.ts';
import { type Deployed, deploy, PROGRAMS } from '../harness/relay/deployed.ts';
import { type FakeRelay, type Reply, reply } from '../harness/relay/fake-relay.ts';
import { stopPrograms } from '../harness/relay/programs.ts';

const BOT = '/ns/acme/bot-provider/helper';
const BLOB = `${BOT}/blob`;
const SANDBOX_FILE = `${BOT}/sandbox/one/fs/file?custom_channel_id=c1&path=a`;
const MIB = 2 ** 20;
const PIECE = Buffer.alloc(65_536, 'x');

const cut: Reply = (res) => res.destroy();

describe.each(PROGRAMS)('$file', (program) => {
  program.describeWith('in front of two relays', () => {
    let deployed: Deployed;
    let { relays, send } = {} as Deployed;
    let session: ClientHttp2Session;
    beforeAll(async () => {
      deployed = await deploy(program, cut);
      ({ relays, send } = deployed);
      session = connect(deployed.front.origin, { ca: deployed.front.certificate });
    });
    afterAll(async () => {
      session?.destroy();
      await deployed?.close();
      await stopPrograms();
    });

    /** Begins a request that one of the relays takes. */
    function begin(method: string, path: string, take: FakeRelay['take'], length = 0): ClientHttp2Stream {
      for (const relay of relays) relay.take = take;
      const headers = length > 0 ? { 'content-type': FORM_TYPE, 'content-length': String(length) } : {};
      return session.request({ ':method': method, ':path': path, ...headers }, { endStream: length === 0 });
    }
    async function statusOf(stream: ClientHttp2Stream): Promise<number> {
      const [headers] = (await once(stream, 'response')) as [Record<string, unknown>];
      stream.resume();
      return Number(headers[':status']);
    }

    test.each([
      ['POST', `${BOT}/channel/clear?custom_channel_id=c1`, undefined],
      ['POST', `${BOT}/message/feedback`, '{}'],
      ['POST', BLOB, PIECE],
      ['PUT', SANDBOX_FILE, PIECE],
      ['PUT', `${BOT}/some/other`, PIECE],
      ['DELETE', `${BOT}/channel?custom_channel_id=c1`, undefined],
      ['DELETE', `${BOT}/sandbox/one/fs/all?custom_channel_id=c1&path=a`, undefined],
    ])('never sends a %s %s again that a relay may have passed on', async (method, path, body) => {
      for (const relay of relays) relay.take = undefined;
      reply(relays, cut, cut);
      const headers = { ':method': method, ...(body instanceof Buffer && { 'content-type': FORM_TYPE }) };
      const request = { headers, ...(body !== undefined && { body }) };
      const answers = await Promise.all(Array.from({ length: 4 }, () => send(path, request)));
      expect(answers.map(({ status }) => status)).toEqual([502, 502, 502, 502]);
      expect(relays.flatMap(({ seen }) => seen.map((one) => [one.method, one.url]))).toEqual(
        Array(4).fill([method, path]),
      );
    });

    test.each([
      ['POST', BLOB],
      ['PUT', SANDBOX_FILE],
    ])('passes a %s %s of 20 MiB on as it arrives', async (method, path) => {
      let arrived = 0;
      const upload = begin(
        method,
        path,
        (req, res) => {
          req.on('data', ({ length }: Buffer) => {
            arrived += length;
          });
          req.on('end', () => res.end('ok'));
        },
        20 * MIB + PIECE.length,
      );
      upload.write(PIECE);
      // The rest is sent only after this has arrived.
      await until(() => arrived === PIECE.length);
      upload.end(Buffer.alloc(20 * MIB, 'y'));
      expect(await statusOf(upload)).toBe(200);
      expect(arrived).toBe(20 * MIB + PIECE.length);
    });

    test.each([
      ['a download', `${BOT}/channel-home/download?custom_channel_id=c1`, 'application/octet-stream'],
      ['a file of a sandbox', SANDBOX_FILE, 'application/octet-stream'],
      ['a live stream', `${BOT}/message/sse?custom_channel_id=c1`, 'text/event-stream'],
    ])('passes %s on as it comes', async (_what, path, type) => {
      let write: (() => void) | undefined;
      const download = begin('GET', path, (_req, res) => {
        const isFile = type !== 'text/event-stream';
        res.writeHead(200, {
          'Content-Type': type,
          ...(isFile && { 'Content-Length': 3 * PIECE.length }),
        });
        let left = 3;
        write = () => {
          left -= 1;
          if (left > 0) res.write(PIECE);
          else res.end(PIECE);
        };
        write();
      });
      let came = 0;
      let written = 1;
      for await (const piece of download) {
        came += (piece as Buffer).length;
        // The next piece is written only after this one has come.
        if (came === written * PIECE.length && written < 3) {
          written += 1;
          write?.();
        }
      }
      expect(came).toBe(3 * PIECE.length);
    });
  });
});
