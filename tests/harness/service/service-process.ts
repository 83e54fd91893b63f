import { secret } from '../../../src/secret.ts';
import { startBotService } from '../../../src/service/bot-service.ts';

/** A bot service on the file of the first argument, in a process of its own. It prints its port. */
const [, , path = '', serviceSecret = '', key = ''] = process.argv;
const { url } = await startBotService({
  keys: [key],
  database: { path, secret: secret(serviceSecret) },
  speed: { wordMs: 0, silenceMs: 600_000 },
});
process.stdout.write(`${url.port}\n`);
