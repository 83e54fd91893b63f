/** undici's `stream`, which its documentation recommends for speed, behind a `node:http` server. */
import { createServer } from 'node:http';
import { Agent, type Dispatcher, stream } from 'undici';
import { API_KEY } from '../support/message.ts';
import { listening, UPSTREAM } from '../support/script-peer.ts';

const dispatcher = new Agent({ connections: null, bodyTimeout: 0 });

const server = createServer((req, res) => {
  const { connection: _hop, ...headers } = req.headers;
  const options = {
    method: req.method as Dispatcher.HttpMethod,
    headers: { ...headers, 'x-api-key': API_KEY },
    body: req,
    dispatcher,
  };
  stream(UPSTREAM + req.url, options, ({ statusCode, headers }) => {
    const { connection: _hop, 'transfer-encoding': _framing, ...kept } = headers;
    res.writeHead(statusCode, kept);
    res.flushHeaders();
    return res;
  }).catch(() => res.destroy());
});
server.listen(0, '127.0.0.1', () => listening(server.address()));
