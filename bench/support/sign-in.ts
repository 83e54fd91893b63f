import { USER } from './message.ts';

/** Signs the user in at the peer on `port`; returns the `Cookie` header of the session. */
export async function signIn(port: number): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${port}/auth/login`, {
    method: 'POST',
    // As from the load balancer where TLS ends.
    headers: { 'Content-Type': 'application/json', 'X-Forwarded-Proto': 'https' },
    body: JSON.stringify(USER),
  });
  if (response.status !== 200) throw new Error(`the sign-in answered ${response.status}`);
  return response.headers
    .getSetCookie()
    .map((cookie) => cookie.split(';', 1)[0])
    .join('; ');
}
