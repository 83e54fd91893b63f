import { textOf } from '../channel/channel-state.ts';
import type { ChannelMessage, Verdict } from '../channel/channel-types.ts';
import { copyFrom, type RowDependencies } from './chat-tools.ts';
import { commentForm } from './comment-form.ts';
import { iconButton, newElement, setAttribute } from './dom.ts';
import { sentTime } from './time-text.ts';

/** What a user can do with an answer that has ended: copy it, regenerate it, and say what they think of it. */
export function answerActions(dependencies: RowDependencies, { metadata }: ChannelMessage) {
  const { tools, channel, onSent } = dependencies;
  const { words } = tools;
  let message: ChannelMessage | undefined;
  const copy = iconButton('copy', words.copyAnswer, {
    part: 'copy',
    onClick: () => message && void copyFrom(copy, textOf(message), tools),
  });
  const regenerate = iconButton('regenerate', words.regenerate, {
    part: 'regenerate',
    onClick() {
      if (!tools.isFirstPress()) return;
      void channel.regenerate(message?.id);
      onSent();
    },
  });
  const comment = commentForm(dependencies, () => thumbs.BAD.focus());
  const thumb = (verdict: Verdict, label: string) => {
    const onClick = () => {
      if (!message) return;
      void channel.feedback(message.id, verdict);
      comment.show(verdict === 'BAD' ? message.id : undefined);
    };
    const element = iconButton('thumb', label, { part: 'thumb', onClick });
    element.classList.toggle('down', verdict === 'BAD');
    return element;
  };
  const thumbs = { GOOD: thumb('GOOD', words.good), BAD: thumb('BAD', words.bad) };
  const buttons = [copy, regenerate, thumbs.GOOD, thumbs.BAD, ...sentTime(metadata, tools.lang)];
  const element = newElement('div', { class: 'actions', part: 'actions' }, buttons);
  return {
    element,
    comment: comment.element,
    /** Shows what can be done with the answer in its new state. */
    update(next: ChannelMessage): void {
      message = next;
      const { state, metadata, parts } = next;
      // The bot asks for a consent: its answer comes after that.
      const isAsking = parts.some((part) => 'state' in part && part.state === 'approval-requested');
      element.hidden = isAsking || !(state === 'done' || state === 'stopped');
      copy.hidden = textOf(next) === '';
      for (const verdict of ['GOOD', 'BAD'] as const) {
        thumbs[verdict].hidden = metadata.messageId === undefined;
        setAttribute(thumbs[verdict], 'aria-pressed', String(metadata.verdict === verdict));
      }
    },
  };
}
