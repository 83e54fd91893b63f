import { jsonAnswer } from '../clients/suspend.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../relay/relay-and-upstream.ts';
import type { RawRequest, RawUpstream, startRawUpstream } from './raw-upstream.ts';

/** With this, the ids of requests begin for whose sandbox the relay asks the service. */
export const SANDBOX_REQUEST = 'for-a-sandbox-';

/** Whether the request is the relay's own question, which sandboxes a conversation has launched. */
export const isQuestion = ({ requestLine, all }: RawRequest) =>
  requestLine.includes('/channel/metadata?') && (all('x-request-id')[0] ?? '').startsWith(SANDBOX_REQUEST);

/** The service's metadata of a conversation that has launched these sandboxes. */
export const launched = (...names: readonly string[]) =>
  jsonAnswer('200 OK', { data: { launchedSandboxes: names.map((sandboxName) => ({ sandboxName })) } }, [
    'Connection: close',
  ]);

type OnRequest = Parameters<typeof startRawUpstream>[0];

/**
 * Answers the relay's own questions: every conversation has launched the sandbox `one`. They are not among the requests
 * of the upstream, nor their connections among its sockets; all other requests go to `onRequest`.
 */
export function withSandboxes(upstream: () => RawUpstream, onRequest: OnRequest): OnRequest {
  return (socket, request) => {
    if (!isQuestion(request)) return onRequest(socket, request);
    const { requests, sockets } = upstream();
    requests.splice(requests.indexOf(request), 1);
    sockets.splice(sockets.indexOf(socket), 1);
    socket.end(launched('one'));
  };
}

/** Starts a raw upstream and a relay as `startRelayAndUpstream`, with sandboxes. */
export async function startWithSandboxes(
  onRequest: OnRequest,
  environment: Record<string, string> = {},
): Promise<RelayAndUpstream> {
  const pair: RelayAndUpstream = await startRelayAndUpstream(
    withSandboxes(() => pair.upstream, onRequest),
    environment,
  );
  return pair;
}
