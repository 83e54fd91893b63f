import type { BotEvent } from '../transport/bot-event.ts';
import type { MessageStream, OnState } from '../transport/message-stream.ts';
import type { BotConversation } from './bot-conversation.ts';
import type { AnswerView, FollowedHistory, ShownElsewhere } from './follow-history.ts';

/** Where answers are shown that had not ended when the page was left. */
export interface ResumedView {
  /** Shows another answer. */
  readonly onAnswer: () => AnswerView;
  /** The relay could not be asked for an answer. */
  readonly onError: (error: unknown) => void;
  /** The history, if there is one: each run is shown by one of the two. */
  readonly history: () => FollowedHistory | undefined;
}

/** Answers that had not ended when the page was left. `begun` resolves when each has begun, or is lost. */
export interface ResumedAnswers extends ShownElsewhere {
  readonly isRunning: () => boolean;
  /** Shows answers that are under way as `stopped`, before their runs end. */
  readonly showStopped: () => void;
  /** Follows nothing any more. Answers that are under way are `stopped`; their runs go on. */
  readonly leave: () => void;
}

/** Shows the answers in a conversation that had not ended when the page was left. Nothing is sent to the bot. */
export function resumedAnswers(
  conversation: Pick<BotConversation, 'resume'>,
  view: ResumedView,
): ResumedAnswers {
  const abort = new AbortController();
  const { signal } = abort;
  const runs = new Set<unknown>();
  const answers = new Map<MessageStream, AnswerView>();
  /** Shows the answer of this event; undefined if the history shows it, or could show it a second time. */
  function begin(stream: MessageStream, { runId: run }: BotEvent): AnswerView | undefined {
    const history = view.history();
    if (history && (run === undefined || history.shows(run))) return undefined;
    runs.add(run);
    const answer = view.onAnswer();
    answers.set(stream, answer);
    answer.onState('streaming');
    return answer;
  }
  async function show(stream: MessageStream, onBegun: () => void): Promise<void> {
    let answer: AnswerView | undefined;
    try {
      for await (const event of stream) {
        answer ??= begin(stream, event);
        if (!answer) return;
        onBegun();
        answer.onEvent(event);
      }
      answers.delete(stream);
      answer?.onState('done');
    } catch (error) {
      answers.delete(stream);
      if (signal.aborted) answer?.onState('stopped');
      else (answer ?? view).onError(error);
    } finally {
      onBegun();
    }
  }
  const onState: OnState = (state, stream) => state !== 'done' && answers.get(stream)?.onState(state);
  const begun = conversation
    .resume({ signal, onState })
    .map((stream) => new Promise<void>((resolve) => void show(stream, resolve)));
  return {
    isRunning: () => answers.size > 0,
    begun: begun.length > 0 ? Promise.all(begun) : undefined,
    shows: (run) => runs.has(run),
    showStopped: () => answers.forEach((answer) => void answer.onState('stopped')),
    leave: () => abort.abort(),
  };
}
