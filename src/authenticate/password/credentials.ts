import { z } from 'zod';

const credentials = z.object({ username: z.string().max(256), password: z.string().max(1024) });

/** The user name and password in the body of a login request; undefined if it has none. */
export function readCredentials(body: unknown): z.infer<typeof credentials> | undefined {
  return credentials.safeParse(body).data;
}
