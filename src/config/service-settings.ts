import { hkdfSync, randomBytes } from 'node:crypto';
import { type Secret, secret } from '../secret.ts';
import { MODEL_KEYS } from './service-model.ts';
import type { Values } from './variables.ts';

const KEY_BYTES = 24;

/** What the bot service of this project is started with. */
export function serviceOf(values: Values) {
  return {
    /** Where it keeps its data; if it does, `secret` is set, too. */
    data: values.SERVICE_DATA,
    secret: values.SERVICE_SECRET,
    /** Where it listens if it runs alone. */
    host: values.SERVICE_HOST,
    port: values.SERVICE_PORT,
    console: {
      host: values.SERVICE_CONSOLE_HOST,
      port: values.SERVICE_CONSOLE_PORT,
      publicUrl: values.SERVICE_CONSOLE_URL as Readonly<URL> | undefined,
    },
    keepDays: values.SERVICE_KEEP_DAYS,
    model: modelOf(values),
  };
}

/** The model of SERVICE_MODEL. */
function modelOf(values: Values) {
  const { SERVICE_MODEL, SERVICE_ENDPOINT: endpoint } = values;
  return SERVICE_MODEL && { ...SERVICE_MODEL, key: values[MODEL_KEYS[SERVICE_MODEL.kind]], endpoint };
}

/** The key of the demo. With a file of the service it is the same at each start, since the service keeps it. */
export function demoKey({ SERVICE_SECRET }: Values): Secret {
  if (!SERVICE_SECRET) return secret(randomBytes(KEY_BYTES).toString('base64url'));
  const key = hkdfSync('sha256', SERVICE_SECRET.open(), '', 'bot-relay: key of the demo', KEY_BYTES);
  return secret(Buffer.from(key).toString('base64url'));
}
