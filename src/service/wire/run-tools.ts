import { randomUUID } from 'node:crypto';
import type { ToolCall } from '../brains/steps.ts';
import type { Channel } from '../store/channel.ts';
import type { Send } from './run-messages.ts';

/** The tool calls of a run. */
export function runTools(channel: Channel | undefined, send: Send) {
  const processId = randomUUID();
  const open = new Map<string, object>();
  let callSeq = 0;
  const complete = (id: string, toolCallResult: object) => {
    send('asgard.tool_call.complete', { toolCallComplete: { ...open.get(id), toolCallResult } });
    open.delete(id);
  };
  return {
    start(id: string, toolCall: ToolCall) {
      const start = { processId, callSeq, toolCall };
      callSeq += 1;
      open.set(id, start);
      send('asgard.tool_call.start', { toolCallStart: start });
    },
    complete,
    /** Completes the calls that are still open, without a result. */
    interrupt() {
      for (const id of open.keys()) complete(id, { error: 'interrupted' });
    },
    askConsent(tool: ToolCall) {
      const call = { toolCallId: randomUUID(), ...tool, alreadyAllowed: false };
      const toolCallConsent = { processId, pendingCalls: [call] };
      channel?.setPendingConsent(toolCallConsent);
      send('asgard.tool_call.consent', { toolCallConsent });
    },
  };
}
