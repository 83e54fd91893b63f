import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { ANSWERS, type Ask, type Speed, type Step, type Tool } from './bot-answers.ts';
import { type EventSource, type EventType, eventText } from './bot-event.ts';
import type { Channel } from './channel.ts';
import { type DemoRun, SUSPENDED } from './run.ts';

/** What a run needs to be executed. */
export interface Execution {
  readonly run: DemoRun;
  readonly ask: Ask;
  /** Where its messages are kept, if anywhere. */
  readonly channel: Channel | undefined;
  readonly source: EventSource;
  readonly speed: Speed;
  readonly maxExecutionMs: number;
}

/** Executes a run until it ends, fails, takes too long or is stopped. Its events go to those who follow it. */
export async function executeRun(execution: Execution): Promise<void> {
  const { run, ask, source, speed, maxExecutionMs } = execution;
  const deadline = setTimeout(() => run.stop.abort(), maxExecutionMs);
  const answer = ANSWERS[`${source.namespace}/${source.botProviderName}`] as (typeof ANSWERS)[string];
  try {
    await sendEvents(answer(ask, speed, run.stop.signal), execution);
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
  let consent: Tool | undefined;
  send('asgard.run.init', { runInit: {} });
  message.begin();
  try {
    for await (const step of steps) {
      if ('error' in step) return send('asgard.run.error', runError(step.error, source));
      if ('breakOff' in step) run.breakOff();
      else if ('call' in step) tools.call(step.call, step.result);
      else if ('askConsent' in step) consent = step.askConsent;
      else if ('nextMessage' in step) {
        message.complete();
        message.begin();
      } else message.say(step.say);
      // A bot that never waits would otherwise keep the process from everything else.
      if ('call' in step) await sleep(0);
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
  let messageId = '';
  let text = '';
  return {
    begin() {
      messageId = randomUUID();
      text = '';
      send('asgard.message.start', { messageStart: { message: { messageId } } });
    },
    say(piece: string) {
      text += piece;
      send('asgard.message.delta', { messageDelta: { message: { messageId, text: piece } } });
    },
    complete() {
      const fact = { messageComplete: { message: { messageId, text } } };
      const kept = channel?.keep('asgard.message.complete', { source, fact, messageId });
      run.send(kept?.text ?? eventText('asgard.message.complete', { source, fact }), kept !== undefined);
    },
  };
}

/** The tool calls of a run. */
function toolCalls({ channel }: Execution, send: Send) {
  const processId = randomUUID();
  let callSeq = 0;
  return {
    call(toolCall: Tool, toolCallResult: object) {
      const start = { processId, callSeq, toolCall };
      send('asgard.tool_call.start', { toolCallStart: start });
      send('asgard.tool_call.complete', { toolCallComplete: { ...start, toolCallResult } });
      callSeq += 1;
    },
    askConsent(tool: Tool) {
      const call = { toolCallId: randomUUID(), ...tool, alreadyAllowed: false };
      const toolCallConsent = { processId, pendingCalls: [call] };
      if (channel) channel.pendingConsent = toolCallConsent;
      send('asgard.tool_call.consent', { toolCallConsent });
    },
  };
}

function runError(error: { code: string; message: string }, { namespace }: EventSource) {
  const location = { namespace, workflowName: 'demo', processorName: 'answer', processorType: 'DEMO' };
  return { runError: { error: { ...error, inner: '', location } } };
}
