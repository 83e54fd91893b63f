import type { Config } from '../config/config.ts';
import { ASSISTANT_BOT, ASSISTANT_SUGGESTIONS } from '../service/bot-brains.ts';
import type { BotService } from '../service/bot-service.ts';
import { allowedDemoBot, demoBots, SCRIPTED_BOTS, SCRIPTED_SUGGESTIONS } from '../service/brains/scripted.ts';
import { type ServiceStart, serviceLines, startService } from './start-service.ts';

/** The user who can sign in to the demo. */
export const DEMO_USER = { name: 'demo', password: 'demo' };

type OfModel = Pick<Config['service'], 'model'>;
type DemoConfig = Pick<Config, 'upstream' | 'bots' | 'service'>;

/**
 * Starts the embedded bot service for the relay's keys. `chat` is what the page of the demo shows besides.
 * @throws ConfigError if its data cannot be used
 */
export async function startDemo(
  { upstream, bots, service }: DemoConfig,
  start: Pick<ServiceStart, 'logger' | 'cannotListen'>,
) {
  const keys = upstream.apiKeys.map((key) => key.open());
  const consolePort = service.console.port;
  const { url, console, close } = await startService(service, { ...start, keys, consolePort });
  const suggestions = { ...SCRIPTED_SUGGESTIONS, [ASSISTANT_BOT]: ASSISTANT_SUGGESTIONS };
  const chat = { bots: demoBots(bots, botsOf(service)), user: DEMO_USER, suggestions };
  return { url, console, close, chat };
}

/** The bots that the demo has, without those of its file. */
function botsOf({ model }: OfModel): readonly string[] {
  return model ? [ASSISTANT_BOT, ...SCRIPTED_BOTS] : SCRIPTED_BOTS;
}

const JSON_TYPE = "-H 'Content-Type: application/json'";

/**
 * The text that the demo prints at its start: what runs, and commands that sign in and send a message. `base` is the
 * relay's URL with its base path; the commands use a bot that `bots` allows.
 */
export function demoBanner(
  base: string,
  { authMode, bots, service }: Pick<Config, 'authMode' | 'bots'> & { readonly service: OfModel },
  console?: BotService['console'],
): string {
  const lines = serviceLines(service, console).map((line) => `  ${line}\n`);
  return `
  bot-relay is running in demo mode: ${base}
  It talks to an embedded bot service; set UPSTREAM_BASE_URL, UPSTREAM_API_KEYS and BOTS for a real one.
${lines.join('')}
  Open ${base}/ in a browser${HOW_TO[authMode](base, allowedDemoBot(bots, botsOf(service)))}

`;
}

const HOW_TO: Readonly<Record<Config['authMode'], (base: string, bot: string) => string>> = {
  password(base, bot) {
    const { name, password } = DEMO_USER;
    return ` and sign in as ${name} / ${password}, or send a message from here:

    curl -c cookies.txt ${JSON_TYPE} -d '{"username":"${name}","password":"${password}"}' ${base}/auth/login
    ${sendMessage(base, bot)}`;
  },
  guest: (base, bot) => `, or send a message from here as a guest:

    curl -c cookies.txt -X POST ${base}/auth/guest
    ${sendMessage(base, bot)}`,
  oidc: (base) => ` and sign in at the identity provider, where
  ${base}/auth/callback must be registered as a redirect URI.`,
};

function sendMessage(base: string, bot: string): string {
  const [namespace = '', name = ''] = bot.split('/').map(segment);
  return `curl -N -b cookies.txt ${JSON_TYPE} -d '{"text":"Hello, how are you today?"}' ${base}/generic/ns/${namespace}/bot-provider/${name}/message/sse`;
}

/** Encodes a segment of a path so that a shell changes nothing in it. */
function segment(text: string): string {
  return encodeURIComponent(text).replace(/[!'()*]/g, (one) => `%${one.charCodeAt(0).toString(16)}`);
}
