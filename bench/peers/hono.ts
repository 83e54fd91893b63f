/** Hono's proxy helper on its Node server. */
import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import { proxy } from 'hono/proxy';
import { API_KEY } from '../support/message.ts';
import { listening, UPSTREAM } from '../support/script-peer.ts';

const app = new Hono();
app.all('*', (c) =>
  proxy(UPSTREAM + c.req.path, { ...c.req, headers: { ...c.req.header(), 'X-API-KEY': API_KEY } }),
);
serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, listening);
