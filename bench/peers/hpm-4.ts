/** http-proxy-middleware 4 alone on Express, with an agent that keeps connections and has no upper bound. */
import { Agent } from 'node:http';
import express from 'express';
import { createProxyMiddleware } from 'http-proxy-middleware';
import { API_KEY } from '../support/message.ts';
import { listening, UPSTREAM } from '../support/script-peer.ts';

const app = express();
app.use(
  createProxyMiddleware({
    target: UPSTREAM,
    changeOrigin: true,
    agent: new Agent({ keepAlive: true }),
    headers: { 'X-API-KEY': API_KEY },
  }),
);
const server = app.listen(0, '127.0.0.1', () => listening(server.address()));
