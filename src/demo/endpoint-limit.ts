const WINDOW_MS = 1000;

/** At most `limit` admissions of one endpoint in any stretch of `WINDOW_MS`, as the service counts them. */
export function endpointLimit(limit: number): (endpoint: string) => boolean {
  const admissions = new Map<string, number[]>();
  return (endpoint) => {
    const now = performance.now();
    const recent = (admissions.get(endpoint) ?? []).filter((at) => at > now - WINDOW_MS);
    const admitted = recent.length < limit;
    if (admitted) recent.push(now);
    admissions.set(endpoint, recent);
    return admitted;
  };
}
