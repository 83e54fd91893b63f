/** Whether something that the relay needs is available. A check of another service must have a deadline. */
export type Check = () => Promise<boolean>;

/** The results of all checks; ready only if all of them are ok. */
export interface Readiness {
  readonly ready: boolean;
  readonly results: Readonly<Record<string, 'ok' | 'failed'>>;
}

/** Runs all checks at the same time. */
export async function readiness(checks: Readonly<Record<string, Check>>): Promise<Readiness> {
  const results = await Promise.all(
    Object.entries(checks).map(async ([name, check]) => [name, (await check()) ? 'ok' : 'failed'] as const),
  );
  return { ready: results.every(([, result]) => result === 'ok'), results: Object.fromEntries(results) };
}
