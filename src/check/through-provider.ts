import { callbackUrlOf } from '../authenticate/oidc/identity-provider.ts';
import { SIGN_IN_COOKIE } from '../authenticate/oidc/sign-in-flows.ts';
import { cookieFaults, problemOf } from './judge-answer.ts';
import type { Answer } from './through-client.ts';
import { reportHeaders, reportWrongAnswer, type ThroughContext } from './through-context.ts';

/**
 * Checks as much of a sign-in at the identity provider as is possible without a browser: that the relay redirects
 * there, and that the callback reaches the relay.
 */
export async function checkProviderSignIn(context: ThroughContext): Promise<void> {
  const { client, base, config, report } = context;
  const answer = await client.call({ method: 'GET', path: `${base}/auth/login` });
  const location = locationOf(answer);
  if (location) {
    reportHeaders(answer, { ...context, kind: 'json' });
    reportCookie(answer, context);
    reportLocation(location, context);
    await checkCallback(context);
  } else reportWrongAnswer(answer, { ...context, check: 'sign-in', advice: adviceOn(answer) });
  report({
    state: 'note',
    check: 'sign-in',
    says: 'nobody was signed in, since this needs a browser: session and message are not checked',
    advice: `Open ${config.publicUrl.origin}${base}/auth/login in a browser.`,
  });
}

function locationOf({ status, headers }: Answer): URL | undefined {
  const { location = '' } = headers;
  return status === 302 && URL.canParse(location) ? new URL(location) : undefined;
}

/** Reports the cookie that binds the sign-in to the browser: without it, the callback is refused. */
function reportCookie({ headers }: Answer, { cookie, report, hide }: ThroughContext): void {
  const check = 'cookie';
  const setCookie = headers['set-cookie']?.find((one) => SET_COOKIE.test(one));
  if (setCookie === undefined) {
    const advice = 'Let the load balancer pass Set-Cookie on.';
    report({ state: 'problem', check, says: 'none came for the sign-in', advice });
    return;
  }
  const [, name = '', value = ''] = SET_COOKIE.exec(setCookie) ?? [];
  hide(value);
  const { secure } = cookie.flags;
  const faults = cookieFaults(setCookie, { name, flags: { sameSite: 'lax', secure } });
  if (secure && !name.startsWith('__Host-')) faults.unshift('its name does not begin with __Host-');
  const flags = `HttpOnly, SameSite=lax${secure ? ', Secure' : ''}`;
  if (faults.length === 0) report({ state: 'ok', check, says: `of the sign-in: ${flags}` });
  else {
    const advice = 'Look at PUBLIC_URL of the running relay; let nobody rewrite Set-Cookie.';
    report({ state: 'problem', check, says: `of the sign-in: ${faults.join('; ')}`, advice });
  }
}

const SET_COOKIE = new RegExp(`^((?:__Host-)?${SIGN_IN_COOKIE}[^=]*)=([^;]+)`);

function reportLocation(location: URL, { config, report, quote, signInEndpoint }: ThroughContext): void {
  const { searchParams } = location;
  const callback = callbackUrlOf(config);
  const faults: string[] = [];
  if (signInEndpoint !== undefined && pageOf(location) !== pageOf(new URL(signInEndpoint))) {
    faults.push(`leads to ${quote(pageOf(location))}, and not to ${quote(pageOf(new URL(signInEndpoint)))}`);
  }
  const back = searchParams.get('redirect_uri') ?? 'nowhere';
  if (back !== callback) faults.push(`leads back to ${quote(back)}, and not to ${callback}`);
  if (searchParams.get('client_id') !== config.oidc.clientId) faults.push('names another OIDC_CLIENT_ID');
  const check = 'sign-in';
  if (faults.length === 0) {
    report({ state: 'ok', check, says: `leads to ${quote(location.host)}, and back to ${callback}` });
  } else {
    const advice = 'The running relay has another PUBLIC_URL, BASE_PATH or provider than this configuration.';
    report({ state: 'problem', check, says: faults.join('; '), advice });
  }
}

function pageOf({ origin, pathname }: URL): string {
  return origin + pathname;
}

/** A callback without a sign-in is refused. It must be the relay that refuses it. */
async function checkCallback(context: ThroughContext): Promise<void> {
  const answer = await context.client.call({ method: 'GET', path: `${context.base}/auth/callback` });
  const check = 'callback';
  if (problemOf(answer)?.code === 'sign_in_failed') {
    context.report({ state: 'ok', check, says: 'without a sign-in is refused by the relay' });
  } else {
    const advice = 'Let the load balancer hand /auth/callback to the relay, with its query.';
    reportWrongAnswer(answer, { ...context, check, advice });
  }
}

function adviceOn(answer: Answer): string {
  switch (problemOf(answer)?.code) {
    case 'identity_provider_unavailable':
      return 'The running relay does not get through to the identity provider: look at its log, and at OIDC_ISSUER.';
    case 'not_found':
    case 'method_not_allowed':
      return 'The running relay does not sign in at an identity provider: look at its AUTH_MODE and BASE_PATH.';
    default:
      return 'Look at the log of the relay, and at what the load balancer does with /auth/login.';
  }
}
