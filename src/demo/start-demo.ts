import type { Config } from '../config.ts';
import type { Secret } from '../secret.ts';
import { type BotService, startBotService } from './bot-service.ts';

export { chatPages } from './chat-page.ts';

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

  Open ${base}/ in a browser${HOW_TO[mode](base)}

`;
}

const HOW_TO: Readonly<Record<Config['authMode'], (base: string) => string>> = {
  password(base) {
    const { name, password } = DEMO_USER;
    return ` and sign in as ${name} / ${password}, or send a message from here:

    curl -c cookies.txt ${JSON_TYPE} -d '{"username":"${name}","password":"${password}"}' ${base}/auth/login
    ${sendMessage(base)}`;
  },
  guest: (base) => `, or send a message from here as a guest:

    curl -c cookies.txt -X POST ${base}/auth/guest
    ${sendMessage(base)}`,
  oidc: (base) => ` and sign in at the identity provider, where
  ${base}/auth/callback must be registered as a redirect URI.`,
};

function sendMessage(base: string): string {
  return `curl -N -b cookies.txt ${JSON_TYPE} -d '{"text":"Hello, how are you today?"}' ${base}/generic/ns/demo/bot-provider/echo/message/sse`;
}
