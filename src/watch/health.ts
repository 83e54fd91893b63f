/** Whether something that the relay needs is there. A check that asks somebody else must have a deadline. */
export type Check = () => boolean | Promise<boolean>;

/** What came of all checks; ready only if each of them holds. */
export interface Readiness {
  readonly ready: boolean;
  readonly results: Readonly<Record<string, 'ok' | 'failed'>>;
}

/** Makes all checks at once. */
export async function readiness(checks: Readonly<Record<string, Check>>): Promise<Readiness> {
  const results = await Promise.all(
    Object.entries(checks).map(async ([name, holds]) => [name, (await holds()) ? 'ok' : 'failed'] as const),
  );
  return { ready: results.every(([, result]) => result === 'ok'), results: Object.fromEntries(results) };
}
