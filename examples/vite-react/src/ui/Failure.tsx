import type { RelayError } from 'bot-relay-client/react';
import type { ReactNode } from 'react';
import { errorText } from '../error-text.ts';

interface Props {
  readonly error: RelayError | undefined;
  /** Buttons. */
  readonly children?: ReactNode;
}

/** What has failed, with the id by which the operator finds the request. */
export function Failure({ error, children }: Props) {
  if (!error) return null;
  return (
    <div className="flex flex-wrap items-center gap-x-4 gap-y-2 rounded-xl border border-bad/30 bg-bad/5 px-4 py-3 text-sm">
      <p role="alert" className="grow basis-60">
        {errorText(error)}
        {error.requestId && (
          <span className="block text-xs break-all text-muted"> Request: {error.requestId}</span>
        )}
      </p>
      {children}
    </div>
  );
}
