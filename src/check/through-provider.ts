import { callbackUrlOf } from '../authenticate/oidc/identity-provider.ts';
import { SIGN_IN_COOKIE } from '../authenticate/oidc/sign-in-flows.ts';
import { secret } from '../secret.ts';
import { adviceOnProblem } from './advice.ts';
import { type Answer, cookieAttributes, cookieFaults, problemOf } from './answers.ts';
import { reportHeaders, reportWrong, type ThroughContext } from './through-context.ts';

const SET_COOKIE = new RegExp(`^((?:__Host-)?${SIGN_IN_COOKIE}[^=]*)=([^;]+)`);

/**
 * Checks as much of a sign-in at the identity provider as is possible without a browser: that the relay redirects
 * there, and that the callback reaches the relay.
 */
export async function checkProviderSignIn(context: ThroughContext): Promise<void> {
  const { client, base, config, report } = context;
  const about = report.about('sign-in');
  const answer = await client.call({ method: 'GET', path: `${base}/auth/login` });
  const { location = '' } = answer.headers;
  if (answer.status === 302 && URL.canParse(location)) {
    reportHeaders(answer.headers, 'sign-in', report);
    reportCookie(answer, context);
    reportLocation(new URL(location), context);
    await checkCallback(context);
  } else reportWrong(answer, about, adviceOn(answer));
  about.note(
    'nobody was signed in, since this needs a browser: session and message are not checked',
    `Open ${config.publicUrl.origin}${base}/auth/login in a browser.`,
  );
}

/** Reports the cookie that binds the sign-in to the browser: without it, the callback is refused. */
function reportCookie({ headers }: Answer, { cookie, report }: ThroughContext): void {
  const { ok, problem } = report.about('cookie');
  const setCookie = headers['set-cookie']?.find((one) => SET_COOKIE.test(one));
  if (setCookie === undefined) {
    problem('none came for the sign-in', 'Let the load balancer pass Set-Cookie on.');
    return;
  }
  const [, name = '', value = ''] = SET_COOKIE.exec(setCookie) ?? [];
  report.hide(secret(value));
  const { secure } = cookie.flags;
  const attributes = cookieAttributes('lax', secure);
  const faults = cookieFaults(setCookie, name, attributes);
  if (secure && !name.startsWith('__Host-')) faults.unshift('its name does not begin with __Host-');
  const advice = 'Look at PUBLIC_URL of the running relay; let nobody rewrite Set-Cookie.';
  if (faults.length > 0) problem(`of the sign-in: ${faults.join('; ')}`, advice);
  else ok(`of the sign-in: ${attributes.join(', ')}`);
}

function reportLocation(location: URL, { config, report, signInEndpoint }: ThroughContext): void {
  const { ok, problem } = report.about('sign-in');
  const callback = callbackUrlOf(config);
  const pageOf = ({ origin, pathname }: URL) => report.quote(origin + pathname);
  const [page, wanted] = [pageOf(location), pageOf(new URL(signInEndpoint ?? location))];
  const back = location.searchParams.get('redirect_uri') ?? 'nowhere';
  const faults: string[] = [];
  if (page !== wanted) faults.push(`leads to ${page}, and not to ${wanted}`);
  if (back !== callback) faults.push(`leads back to ${report.quote(back)}, and not to ${callback}`);
  if (location.searchParams.get('client_id') !== config.oidc.clientId)
    faults.push('names another OIDC_CLIENT_ID');
  const advice = 'The running relay has another PUBLIC_URL, BASE_PATH or provider than this configuration.';
  if (faults.length > 0) problem(faults.join('; '), advice);
  else ok(`leads to ${report.quote(location.host)}, and back to ${callback}`);
}

/** A callback without a sign-in is refused. It must be the relay that refuses it. */
async function checkCallback({ client, base, report }: ThroughContext): Promise<void> {
  const about = report.about('callback');
  const answer = await client.call({ method: 'GET', path: `${base}/auth/callback` });
  if (problemOf(answer)?.code === 'sign_in_failed') about.ok('without a sign-in is refused by the relay');
  else reportWrong(answer, about, 'Let the load balancer hand /auth/callback to the relay, with its query.');
}

function adviceOn(answer: Answer): string {
  const wrongMode =
    'The running relay does not sign in at an identity provider: look at its AUTH_MODE and BASE_PATH.';
  return adviceOnProblem(problemOf(answer)?.code, {
    none: 'Look at what the load balancer does with /auth/login.',
    ...{ not_found: wrongMode, method_not_allowed: wrongMode },
  });
}
