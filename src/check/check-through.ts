import { cookieFlags } from '../authenticate/sessions/session-cookie.ts';
import { botPath } from '../bots/bot.ts';
import { isLoopback } from '../http/hosts.ts';
import { adviceFor, adviceOnProblem } from './advice.ts';
import { type Answer, problemOf, unauthenticatedFaults } from './answers.ts';
import { checkAddress } from './check-address.ts';
import { checkConversation } from './check-conversation.ts';
import { botOf, newMessage } from './conversation.ts';
import { HttpClient, jsonBody } from './http-client.ts';
import type { ThroughContext, ThroughOptions } from './through-context.ts';
import { checkProbes } from './through-probes.ts';
import { checkProviderSignIn } from './through-provider.ts';
import { checkSession } from './through-session.ts';

/** Checks the whole path from the public address, with a sign-in, a message and a sign-out. */
export async function checkThrough(options: ThroughOptions): Promise<void> {
  const { config, through, report, visitor } = options;
  checkPublicUrl(options);
  if (!(await checkAddress(through, report))) return;
  const https = config.publicUrl.protocol === 'https:';
  const context: ThroughContext = {
    ...options,
    client: new HttpClient(through, {
      // As a browser sends it: a load balancer may compress for clients that accept it.
      ...{ 'Accept-Encoding': 'gzip, deflate, br', Accept: '*/*' },
      ...{ 'Sec-Fetch-Site': 'same-origin', Origin: through.origin },
    }),
    base: config.basePath,
    cookie: cookieFlags({ https, sameSite: config.session.sameSite }),
  };
  try {
    if (!(await checkUnauthenticated(context))) return;
    if (config.authMode === 'oidc') await checkProviderSignIn(context);
    else if (visitor) await checkSession(context, visitor, (cookie) => checkConversation(context, cookie));
    else report.about('sign-in').note('not checked, and neither are cookie and message', 'Give --user NAME.');
    // Done last: a load balancer may stop using an instance for a while after it fails.
    await checkProbes(context);
  } catch (error) {
    const code = (error as Error).message;
    report
      .about('connection', through.host)
      .problem(`no answer from ${through.host} (${code})`, adviceFor(code));
  }
}

function checkPublicUrl({ config: { publicUrl }, through, report }: ThroughOptions): void {
  const { ok, problem } = report.about('public address');
  if (publicUrl.origin !== through.origin) {
    const says = `PUBLIC_URL is ${publicUrl.origin}, and this address is ${through.origin}`;
    problem(says, 'Set PUBLIC_URL to what browsers have in their address bar.');
  } else if (through.protocol !== 'https:' && !isLoopback(through.hostname)) {
    const says = 'not https: everybody on the way can read cookies and passwords';
    problem(says, 'Let the load balancer end TLS.');
  } else ok('is PUBLIC_URL');
}

const NO_BOT = 'check/check';

/** Sends a message without a session: it costs nothing, and shows whether the path leads to the relay. */
async function checkUnauthenticated(context: ThroughContext): Promise<boolean> {
  const { client, base, bot = NO_BOT, text, report } = context;
  const path = `${botPath(base, '/generic/ns', botOf(text === undefined ? NO_BOT : bot))}/message/sse`;
  const body = jsonBody(newMessage('Test without a session.'));
  const answer = await client.call({ method: 'POST', path, body });
  const faults = unauthenticatedFaults(answer);
  const { ok, problem } = report.about('not signed in');
  if (faults.length === 0) ok('a message is refused with 401, as problem+json');
  else
    problem(`a message is not refused as it should be: ${report.quote(faults.join('; '))}`, adviceOn(answer));
  return answer.status === 401;
}

function adviceOn(answer: Answer): string {
  const { status } = answer;
  const none =
    status >= 300 && status < 400
      ? 'Use the address that it redirects to, or take the redirect away.'
      : status >= 500
        ? 'Look at whether the relay runs, and at where the load balancer looks for it.'
        : 'Look at the paths that the load balancer hands to the relay.';
  const unauthenticated = 'Let the load balancer pass the answers of the relay on as they are.';
  return adviceOnProblem(problemOf(answer)?.code, { none, unauthenticated, not_found: 'Look at BASE_PATH.' });
}
