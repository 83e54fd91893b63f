import { setTimeout as sleep } from 'node:timers/promises';
import type { Ask, Brain, RunError, ToolCall } from '../brains/steps.ts';
import type { EventSource } from '../store/bot-event.ts';
import type { Channel } from '../store/channel.ts';
import { type Run, SHUT_DOWN, SUSPENDED } from '../store/run.ts';
import { INTERRUPTED } from '../store/run-rows.ts';
import { RunEvents } from './run-events.ts';

/** What a run needs to be executed. */
export interface Execution {
  readonly run: Run;
  readonly brain: Brain;
  readonly ask: Ask;
  /** Where its messages are kept, if anywhere. */
  readonly channel: Channel | undefined;
  readonly source: EventSource;
  readonly maxExecutionMs: number;
  /** Called with an error that nobody has thought of. */
  readonly onFault: (error: unknown) => void;
}

/** Executes a run until it ends, fails, takes too long or is stopped. Its events go to those who follow it. */
export async function executeRun(execution: Execution): Promise<void> {
  const { run, brain, channel, source, maxExecutionMs } = execution;
  const deadline = setTimeout(() => run.stop.abort(), maxExecutionMs);
  try {
    const events = new RunEvents(run, channel, source);
    events.send('asgard.run.init', { runInit: {} });
    events.end(brain, await answer(execution, events).catch((error) => errorOf(error, execution)));
  } finally {
    clearTimeout(deadline);
    run.end();
    channel?.live.end(run);
  }
}

/** Takes the steps of the bot. Returns the error with which it ends its run, if it does; throws if it is aborted. */
async function answer({ run, brain, ask }: Execution, events: RunEvents): Promise<RunError | undefined> {
  const { signal } = run.stop;
  let consent: ToolCall | undefined;
  try {
    for await (const step of untilAborted(brain.answer(ask, signal), signal)) {
      if ('error' in step) return step.error;
      if ('breakOff' in step) run.breakOff();
      else if ('startTool' in step) events.startTool(step.id, step.startTool);
      else if ('toolResult' in step) events.completeTool(step.id, step.toolResult);
      else if ('askConsent' in step) consent = step.askConsent;
      else if ('startMessage' in step) events.startMessage();
      else if ('completeMessage' in step) events.complete(step.remember);
      else if ('remember' in step) events.remember(step.remember);
      else events.say(step.say);
      // A bot that never waits would otherwise keep the process from everything else.
      if ('toolResult' in step) await sleep(0);
    }
    events.complete();
  } catch (error) {
    if (signal.reason !== SUSPENDED) throw error;
    events.stop(brain.stopped);
  }
  if (consent) events.askConsent(consent);
  return undefined;
}

/** What is said of a run that was aborted, or that failed in a way that nobody has thought of. */
function errorOf(error: unknown, { run, onFault }: Execution): RunError {
  const { aborted, reason } = run.stop.signal;
  if (reason === SHUT_DOWN) return INTERRUPTED;
  if (aborted && reason !== SUSPENDED)
    return { code: 'EXECUTION_TIMEOUT', message: 'The run took longer than it may.' };
  onFault(error);
  return { code: 'INTERNAL_ERROR', message: 'The bot service could not go on with this run.' };
}

/** The items, until `signal` aborts: then it throws the reason, also while the next item is awaited. */
async function* untilAborted<Item>(items: AsyncIterable<Item>, signal: AbortSignal): AsyncGenerator<Item> {
  const iterator = items[Symbol.asyncIterator]();
  try {
    while (true) {
      const { done, value } = await raced(iterator.next(), signal);
      if (done) return;
      yield value;
    }
  } finally {
    // Who does not heed the signal may never come to an end.
    void iterator.return?.().catch(() => {});
  }
}

function raced<Value>(promise: Promise<Value>, signal: AbortSignal): Promise<Value> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
