const WINDOW_MS = 1000;

/** Makes the function that admits at most `limit` requests of one endpoint in any window of `WINDOW_MS`. */
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
