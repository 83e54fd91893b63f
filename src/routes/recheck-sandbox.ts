import { Problem } from '../errors.ts';
import { KNOWN_MS } from '../guard/sandboxes.ts';

/**
 * Checks a sandbox again and again while a stream shows it, as often as a new request for it would. Aborts `stop` with
 * the reason once it is refused; a check that finds no slot is left to the next one. Returns the function that ends it.
 */
export function recheckSandbox(check: () => Promise<void>, stop: AbortController): () => void {
  const timer = setInterval(() => {
    check().catch((reason) => {
      if (!(reason instanceof Problem) || reason.status !== 429) stop.abort(reason);
    });
  }, KNOWN_MS);
  return () => clearInterval(timer);
}
