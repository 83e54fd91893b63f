import type { ToolCallConsent } from '../channel/bot-conversation.ts';
import type { CalledTool, Facts } from './bot-event.ts';

/** The facts of all events about tool calls. */
export type ToolFacts = Facts['asgard.tool_call.start'] &
  Facts['asgard.tool_call.complete'] &
  Facts['asgard.tool_call.consent'];

/** The id of a tool call that the bot makes by itself: the same process and number mean the same call. */
export function callIdOf({ processId, callSeq }: Pick<CalledTool, 'processId' | 'callSeq'>): string {
  return `${processId}-${callSeq}`;
}

/** What the bot service is told when the user allows a tool call, or all of its kind, or does not. */
export function consentResult(allow: boolean | 'always'): ToolCallConsent['result'] {
  if (!allow) return 'DENY_ONCE';
  return allow === 'always' ? 'ALLOW_ALWAYS' : 'ALLOW_ONCE';
}
