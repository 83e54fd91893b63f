import { randomUUID } from 'node:crypto';
import type { Brain, RunError, ToolCall, Turn } from '../brains/steps.ts';
import { type EventSource, type EventType, eventText } from '../store/bot-event.ts';
import type { Channel } from '../store/channel.ts';
import type { Run } from '../store/run.ts';

/** The events of one run. All that follow it get them; whole messages are kept in its channel, if it has one. */
export class RunEvents {
  readonly #run: Run;
  readonly #channel: Channel | undefined;
  readonly #source: EventSource;
  readonly #processId = randomUUID();
  /** The tool calls that have no result yet, by their ids. */
  readonly #calls = new Map<string, object>();
  #callSeq = 0;
  #message: { readonly messageId: string; readonly text: string } | undefined;
  /** What the bot remembers of this run. */
  readonly #turn: unknown[] = [];

  constructor(run: Run, channel: Channel | undefined, source: EventSource) {
    this.#run = run;
    this.#channel = channel;
    this.#source = source;
  }

  /** Sends an event that is not kept. */
  send(eventType: EventType, fact: object): void {
    this.#run.send(eventText(eventType, { source: this.#source, fact }), false);
  }

  startMessage(): void {
    const messageId = randomUUID();
    this.#message = { messageId, text: '' };
    this.send('asgard.message.start', { messageStart: { message: { messageId } } });
  }

  say(text: string): void {
    const { messageId, text: before } = this.#message ?? { messageId: randomUUID(), text: '' };
    this.#message = { messageId, text: before + text };
    this.send('asgard.message.delta', { messageDelta: { message: { messageId, text } } });
  }

  /** Completes the message that is open, if one is, and adds to what the bot remembers. */
  complete(remember: Turn = [], state: { readonly isStopped?: true } = {}): void {
    const eventType: EventType = 'asgard.message.complete';
    const message = this.#message;
    const fact = { messageComplete: { message: { ...message, ...state } } };
    const event = message && { eventType, source: this.#source, fact, messageId: message.messageId };
    // All that belongs together is written before anything of it is sent.
    const kept = this.#channel?.transaction(() => {
      if (remember.length > 0) this.#turn.push(...remember);
      if (remember.length > 0) this.#channel?.turns.write(this.#run.id, this.#turn);
      return event && this.#channel?.kept.add(event);
    });
    if (event) this.#run.send(kept?.text ?? eventText(eventType, event), kept !== undefined);
    this.#message = undefined;
  }

  /** Adds to what the bot remembers. A message that is open stays so. */
  remember(messages: Turn): void {
    this.#turn.push(...messages);
    this.#channel?.transaction(() => this.#channel?.turns.write(this.#run.id, this.#turn));
  }

  /** Completes the message that is open as one that the user has stopped. */
  stop(stopped: Brain['stopped'] = () => []): void {
    this.complete(stopped(this.#message?.text ?? ''), { isStopped: true });
  }

  startTool(id: string, toolCall: ToolCall): void {
    const toolCallStart = { processId: this.#processId, callSeq: this.#callSeq, toolCall };
    this.#callSeq += 1;
    this.#calls.set(id, toolCallStart);
    this.send('asgard.tool_call.start', { toolCallStart });
  }

  completeTool(id: string, toolCallResult: object): void {
    this.send('asgard.tool_call.complete', { toolCallComplete: { ...this.#calls.get(id), toolCallResult } });
    this.#calls.delete(id);
  }

  askConsent(tool: ToolCall): void {
    const call = { toolCallId: randomUUID(), ...tool, alreadyAllowed: false };
    const toolCallConsent = { processId: this.#processId, pendingCalls: [call] };
    this.#channel?.setPendingConsent(toolCallConsent);
    this.send('asgard.tool_call.consent', { toolCallConsent });
  }

  /** Ends the calls that are still open without a result, and then the run. */
  end(brain: Brain, error: RunError | undefined): void {
    for (const id of this.#calls.keys()) this.completeTool(id, { error: 'interrupted' });
    try {
      this.#channel?.runs.end(this.#run.id, error);
    } finally {
      this.#run.send(runEndText(this.#source, brain, error), false);
    }
  }
}

/** The event that ends a run: that it is done, or its error. */
export function runEndText(source: EventSource, { hasSandbox }: Brain, error: RunError | undefined): string {
  if (!error) return eventText('asgard.run.done', { source, fact: { runDone: {} } });
  const { namespace, botProviderName: name } = source;
  const at = hasSandbox
    ? { workflowName: 'demo', processorName: 'answer', processorType: 'DEMO' }
    : { workflowName: name, processorName: name, processorType: 'MODEL' };
  const fact = { runError: { error: { ...error, inner: '', location: { namespace, ...at } } } };
  return eventText('asgard.run.error', { source, fact });
}
