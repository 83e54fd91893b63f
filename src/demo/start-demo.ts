import type { Config } from '../config.ts';
import type { Secret } from '../secret.ts';
import { type BotService, startBotService } from './bot-service.ts';

/** Who can sign in to the demo. */
export const DEMO_USER = { name: 'demo', password: 'demo' };

/** Starts the embedded bot service for the relay's `keys`. */
export function startDemo(keys: readonly Secret[]): Promise<BotService> {
  return startBotService({ keys: keys.map((key) => key.open()) });
}

const JSON_TYPE = "-H 'Content-Type: application/json'";

/**
 * What the demo says at its start: what runs, and how to sign in and send a message, as commands to paste.
 * `base` is the relay's URL and base path, and `mode` how users sign in.
 */
export function demoBanner(base: string, mode: Config['authMode'] = 'password'): string {
  return `
  bot-relay is running in demo mode: ${base}
  It talks to an embedded bot service; set UPSTREAM_BASE_URL, UPSTREAM_API_KEYS and BOTS for a real one.

  ${HOW_TO[mode](base)}

`;
}

const HOW_TO: Readonly<Record<Config['authMode'], (base: string) => string>> = {
  password(base) {
    const { name, password } = DEMO_USER;
    return `Sign in as ${name} / ${password}, then send a message:

    curl -c cookies.txt ${JSON_TYPE} -d '{"username":"${name}","password":"${password}"}' ${base}/auth/login
    ${messageWith('cookies.txt', base)}`;
  },
  guest: (base) => `Come in as a guest, then send a message:

    curl -c cookies.txt -X POST ${base}/auth/guest
    ${messageWith('cookies.txt', base)}`,
  oidc: (base) => `Open ${base}/auth/login in a browser, and sign in at the identity provider, where
  ${base}/auth/callback must be registered as a redirect URI. It leads back to /, where the demo
  has no page; ${base}/auth/session then says who you are.
  To send a message, copy the value of the cookie bot_relay_session from the browser:

    ${messageWith("'bot_relay_session=VALUE'", base)}`,
};

/** `cookies` is a file of curl, or the cookies themselves. */
function messageWith(cookies: string, base: string): string {
  return `curl -N -b ${cookies} ${JSON_TYPE} -d '{"text":"Hello, how are you today?"}' ${base}/generic/ns/demo/bot-provider/echo/message/sse`;
}
