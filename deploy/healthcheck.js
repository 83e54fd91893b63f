// Exits with 0 if the relay in this container is alive. The image's HEALTHCHECK runs it.
const { HOST = '', PORT, BASE_PATH = '' } = process.env;
// Without HOST, or with an address that stands for all, the relay is reached by localhost.
const name = ['', '0.0.0.0', '::'].includes(HOST) ? 'localhost' : HOST.includes(':') ? `[${HOST}]` : HOST;
const answer = await fetch(`http://${name}:${PORT || 3000}${BASE_PATH}/healthz`, {
  signal: AbortSignal.timeout(3000),
}).catch(() => undefined);
process.exit(answer?.ok ? 0 : 1);
