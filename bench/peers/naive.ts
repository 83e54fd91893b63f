/**
 * What a good engineer puts together in a day: Express with helmet, sessions, limits, a log and a proxy, each library as
 * its documentation shows it. With the URL of a Redis as second argument, sessions and counts are kept there.
 */
import { timingSafeEqual } from 'node:crypto';
import { Agent } from 'node:http';
import { RedisStore as SessionStore } from 'connect-redis';
import express from 'express';
import { rateLimit } from 'express-rate-limit';
import session from 'express-session';
import helmet from 'helmet';
import { createProxyMiddleware } from 'http-proxy-middleware';
import { pinoHttp } from 'pino-http';
import { RedisStore as CountStore } from 'rate-limit-redis';
import { createClient } from 'redis';
import { API_KEY, USER } from '../support/message.ts';
import { listening, UPSTREAM } from '../support/script-peer.ts';

declare module 'express-session' {
  interface SessionData {
    user: string;
  }
}

const redis = process.argv[3] ? createClient({ url: process.argv[3] }) : undefined;
redis?.on('error', (error) => console.error(error));
await redis?.connect();

/** A limit by address, too high to be reached here; each has counts of its own. */
function limiter(name: string) {
  return rateLimit({
    windowMs: 60_000,
    limit: 1_000_000_000,
    standardHeaders: 'draft-8',
    legacyHeaders: false,
    ...(redis && {
      store: new CountStore({ prefix: `${name}:`, sendCommand: (...args) => redis.sendCommand(args) }),
    }),
  });
}

/** Whether the password of the only user was given. */
function isUser(body: Partial<typeof USER> | undefined): boolean {
  const [given, wanted] = [Buffer.from(String(body?.password)), Buffer.from(USER.password)];
  const isRight = given.length === wanted.length && timingSafeEqual(given, wanted);
  return isRight && body?.username === USER.username;
}

const app = express();
// TLS ends at the load balancer.
app.set('trust proxy', 1);
app.use(pinoHttp({ redact: ['req.headers.cookie', 'res.headers["set-cookie"]'] }));
app.use(helmet());
app.use(limiter('requests'));
app.use(
  session({
    ...(redis && { store: new SessionStore({ client: redis }) }),
    secret: 'bench-session-secret-7c1e09d4b2f85a36',
    resave: false,
    saveUninitialized: false,
    cookie: { secure: true, sameSite: 'strict' },
  }),
);
app.post('/auth/login', limiter('sign-ins'), express.json(), (req, res, next) => {
  if (!isUser(req.body)) return void res.sendStatus(401);
  req.session.regenerate((failed) => {
    if (failed) return next(failed);
    req.session.user = USER.username;
    req.session.save((failed) => (failed ? next(failed) : res.json({ user: USER.username })));
  });
});
app.use((req, res, next) => {
  if (req.session.user === undefined) res.sendStatus(401);
  else next();
});
app.use(
  createProxyMiddleware({
    target: UPSTREAM,
    changeOrigin: true,
    agent: new Agent({ keepAlive: true }),
    headers: { 'X-API-KEY': API_KEY },
    on: { proxyReq: (outgoing) => outgoing.removeHeader('cookie') },
  }),
);
const server = app.listen(0, '127.0.0.1', () => listening(server.address()));
