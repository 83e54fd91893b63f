import { cookieFlags } from '../authenticate/sessions/session-cookie.ts';
import type { Config } from '../config/config.ts';
import { isLoopback } from '../http/hosts.ts';
import { checkAddress } from './check-address.ts';
import { adviceFor } from './failure-advice.ts';
import type { Report } from './findings.ts';
import { unauthenticatedFaults } from './judge-answer.ts';
import { checkConversation } from './operations/check-conversation.ts';
import { messageBody, pathFor } from './send-message.ts';
import { type Answer, throughClient } from './through-client.ts';
import type { ThroughContext, ThroughOptions } from './through-context.ts';
import { checkForeignHost } from './through-host.ts';
import { checkProbes } from './through-probes.ts';
import { checkProviderSignIn } from './through-provider.ts';
import { checkSession } from './through-session.ts';

/** Checks the whole path from the public address, with a sign-in, a message and a sign-out. */
export async function checkThrough(options: ThroughOptions): Promise<void> {
  const { config, through, report, visitor } = options;
  checkPublicUrl(config, through, report);
  if (!(await checkAddress(through, options))) return;
  const context: ThroughContext = {
    ...options,
    client: throughClient(through),
    base: config.basePath,
    cookie: cookieFlags({
      https: config.publicUrl.protocol === 'https:',
      sameSite: config.session.sameSite,
    }),
  };
  try {
    if (!(await checkUnauthenticated(context))) return;
    await checkForeignHost(context);
    if (config.authMode === 'oidc') await checkProviderSignIn(context);
    else if (visitor)
      await checkSession({ ...context, visitor }, (cookie) => checkConversation(context, cookie));
    else {
      const advice = 'Give --user NAME.';
      report({
        state: 'note',
        check: 'sign-in',
        says: 'not checked, and neither are cookie and message',
        advice,
      });
    }
    // Done last: a load balancer may stop using an instance for a while after it fails.
    await checkProbes(context);
  } catch (error) {
    const code = (error as Error).message;
    const says = `no answer from ${through.host} (${code})`;
    report({ state: 'problem', check: 'connection', about: through.host, says, advice: adviceFor(code) });
  }
}

function checkPublicUrl({ publicUrl }: Config, through: Readonly<URL>, report: Report): void {
  const check = 'public address';
  if (publicUrl.origin !== through.origin) {
    const says = `PUBLIC_URL is ${publicUrl.origin}, and this address is ${through.origin}`;
    const advice = 'Set PUBLIC_URL to what browsers have in their address bar.';
    report({ state: 'problem', check, says, advice });
  } else if (through.protocol !== 'https:' && !isLoopback(through.hostname)) {
    const says = 'not https: everybody on the way can read cookies and passwords';
    report({ state: 'problem', check, says, advice: 'Let the load balancer end TLS.' });
  } else report({ state: 'ok', check, says: 'is PUBLIC_URL' });
}

const NO_BOT = 'check/check';

/** Sends a message without a session: it costs nothing, and shows whether the path leads to the relay. */
async function checkUnauthenticated({
  client,
  base,
  bot = NO_BOT,
  text,
  report,
  quote,
}: ThroughContext): Promise<boolean> {
  const path = pathFor(base, text === undefined ? NO_BOT : bot);
  const answer = await client.call({ method: 'POST', path, json: messageBody('Test without a session.') });
  const faults = unauthenticatedFaults(answer);
  const check = 'not signed in';
  if (faults.length === 0)
    report({ state: 'ok', check, says: 'a message is refused with 401, as problem+json' });
  else {
    const says = `a message is not refused as it should be: ${quote(faults.join('; '))}`;
    report({ state: 'problem', check, says, advice: adviceOn(answer) });
  }
  return answer.status === 401;
}

function adviceOn({ status, headers }: Answer): string {
  if (status === 401) return 'Let the load balancer pass the answers of the relay on as they are.';
  if (status === 421)
    return 'Let the load balancer pass Host on as it came; or add what it sends to ALLOWED_HOSTS.';
  if (status >= 300 && status < 400)
    return 'Use the address that it redirects to, or take the redirect away.';
  if (status === 403) return 'Set PUBLIC_URL, and let the load balancer pass Origin and Sec-Fetch-Site on.';
  if (status >= 500) return 'Look at whether the relay runs, and at where the load balancer looks for it.';
  const isRelay = headers['x-request-id'] !== undefined;
  return isRelay ? 'Look at BASE_PATH.' : 'Look at the paths that the load balancer hands to the relay.';
}
