/** http-proxy-middleware alone, in front of the URL in the first argument. It sends its port to its parent. */
import { Agent, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createProxyMiddleware } from 'http-proxy-middleware';

const agent = new Agent({ keepAlive: true });
const proxy = createProxyMiddleware({ target: process.argv[2] ?? '', agent });
const server = createServer((req, res) => void proxy(req, res, () => res.destroy()));
server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
process.once('disconnect', () => process.exit());
