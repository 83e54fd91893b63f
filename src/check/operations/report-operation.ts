import type { Finding } from '../findings.ts';
import type { Answer } from '../through-client.ts';
import { adviceOn, describe } from './judge-operation.ts';
import type { OperationSession } from './operation-session.ts';

/** Reports findings about one operation, which `about` names as `METHOD path`. */
export function reporterOf({ report, quote }: Pick<OperationSession, 'report' | 'quote'>, about: string) {
  const finding = (state: Finding['state']) => (says: string, advice?: string) =>
    report({ state, check: 'operation', about, says, ...(advice !== undefined && { advice }) });
  const problem = finding('problem');
  return {
    ok: finding('ok'),
    note: finding('note'),
    problem,
    /** An answer that is not the expected one. */
    wrong: (answer: Answer, advice = adviceOn(answer)) =>
      problem(`answered with ${quote(describe(answer))}`, advice),
  };
}
