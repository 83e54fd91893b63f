// Exits with 0 if the relay in this container is alive. The image's HEALTHCHECK runs it.
const { PORT, BASE_PATH = '' } = process.env;
const answer = await fetch(`http://localhost:${PORT || 3000}${BASE_PATH}/healthz`, {
  signal: AbortSignal.timeout(3000),
}).catch(() => undefined);
process.exit(answer?.ok ? 0 : 1);
