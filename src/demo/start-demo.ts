import type { Secret } from '../secret.ts';
import { type BotService, startBotService } from './bot-service.ts';

export { chatPages } from './chat-page.ts';

/** Who can sign in to the demo. */
export const DEMO_USER = { name: 'demo', password: 'demo' };

/** Starts the embedded bot service for the relay's `keys`. */
export function startDemo(keys: readonly Secret[]): Promise<BotService> {
  return startBotService({ keys: keys.map((key) => key.open()) });
}

/** What the demo says at its start: what runs, and two commands to paste. `base` is the relay's URL and base path. */
export function demoBanner(base: string): string {
  const { name, password } = DEMO_USER;
  const json = "-H 'Content-Type: application/json'";
  return `
  bot-relay is running in demo mode: ${base}
  It talks to an embedded bot service; set UPSTREAM_BASE_URL, UPSTREAM_API_KEYS and BOTS for a real one.

  Open ${base}/ in a browser and sign in as ${name} / ${password}, or send a message from here:

    curl -c cookies.txt ${json} -d '{"username":"${name}","password":"${password}"}' ${base}/auth/login
    curl -N -b cookies.txt ${json} -d '{"text":"Hello, how are you today?"}' ${base}/generic/ns/demo/bot-provider/echo/message/sse

`;
}
