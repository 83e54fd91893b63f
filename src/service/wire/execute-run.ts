import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Ask, Brain, RunError, Step, ToolCall } from '../brains/steps.ts';
import { type EventSource, type EventType, eventText } from '../store/bot-event.ts';
import type { Channel } from '../store/channel.ts';
import { type Run, SUSPENDED } from '../store/run.ts';

/** What a run needs to be executed. */
export interface Execution {
  readonly run: Run;
  readonly brain: Brain;
  readonly ask: Ask;
  /** Where its messages are kept, if anywhere. */
  readonly channel: Channel | undefined;
  readonly source: EventSource;
  readonly maxExecutionMs: number;
}

/** Executes a run until it ends, fails, takes too long or is stopped. Its events go to those who follow it. */
export async function executeRun(execution: Execution): Promise<void> {
  const { run, brain, ask, maxExecutionMs } = execution;
  const deadline = setTimeout(() => run.stop.abort(), maxExecutionMs);
  try {
    await sendEvents(brain.answer(ask, run.stop.signal), execution);
  } finally {
    clearTimeout(deadline);
    run.end();
  }
}

async function sendEvents(steps: AsyncIterable<Step>, execution: Execution): Promise<void> {
  const { run, source } = execution;
  const send = (eventType: EventType, fact: object) =>
    run.send(eventText(eventType, { source, fact }), false);
  const message = messages(execution, send);
  const tools = toolCalls(execution, send);
  let consent: ToolCall | undefined;
  send('asgard.run.init', { runInit: {} });
  try {
    for await (const step of steps) {
      if ('error' in step) return send('asgard.run.error', runError(step.error, source));
      if ('breakOff' in step) run.breakOff();
      else if ('startTool' in step) tools.start(step.id, step.startTool);
      else if ('toolResult' in step) tools.complete(step.id, step.toolResult);
      else if ('askConsent' in step) consent = step.askConsent;
      else if ('startMessage' in step) message.start();
      else if ('completeMessage' in step) message.complete();
      else if ('say' in step) message.say(step.say);
      // A bot that never waits would otherwise keep the process from everything else.
      if ('toolResult' in step) await sleep(0);
    }
  } catch {
    const error = { code: 'EXECUTION_TIMEOUT', message: 'The run took longer than it may.' };
    if (run.stop.signal.reason !== SUSPENDED) return send('asgard.run.error', runError(error, source));
  }
  message.complete();
  if (consent) tools.askConsent(consent);
  send('asgard.run.done', { runDone: {} });
}

type Send = (eventType: EventType, fact: object) => void;

/** The messages that a run sends, one after the other. Whole ones are kept in the channel. */
function messages({ run, channel, source }: Execution, send: Send) {
  let messageId: string | undefined;
  let text = '';
  return {
    start() {
      messageId = randomUUID();
      text = '';
      send('asgard.message.start', { messageStart: { message: { messageId } } });
    },
    say(piece: string) {
      text += piece;
      send('asgard.message.delta', { messageDelta: { message: { messageId, text: piece } } });
    },
    /** Does nothing if no message is open. */
    complete() {
      if (messageId === undefined) return;
      const fact = { messageComplete: { message: { messageId, text } } };
      const kept = channel?.keep('asgard.message.complete', { source, fact, messageId });
      run.send(kept?.text ?? eventText('asgard.message.complete', { source, fact }), kept !== undefined);
      messageId = undefined;
    },
  };
}

/** The tool calls of a run. */
function toolCalls({ channel }: Execution, send: Send) {
  const processId = randomUUID();
  const started = new Map<string, object>();
  return {
    start(id: string, toolCall: ToolCall) {
      const start = { processId, callSeq: started.size, toolCall };
      started.set(id, start);
      send('asgard.tool_call.start', { toolCallStart: start });
    },
    complete(id: string, toolCallResult: object) {
      send('asgard.tool_call.complete', { toolCallComplete: { ...started.get(id), toolCallResult } });
    },
    askConsent(tool: ToolCall) {
      const call = { toolCallId: randomUUID(), ...tool, alreadyAllowed: false };
      const toolCallConsent = { processId, pendingCalls: [call] };
      if (channel) channel.pendingConsent = toolCallConsent;
      send('asgard.tool_call.consent', { toolCallConsent });
    },
  };
}

function runError(error: RunError, { namespace }: EventSource) {
  const location = { namespace, workflowName: 'demo', processorName: 'answer', processorType: 'DEMO' };
  return { runError: { error: { ...error, inner: '', location } } };
}
