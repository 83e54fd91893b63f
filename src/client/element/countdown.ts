import { type ChatTools, setDisabled, setText } from './chat-tools.ts';
import { durationText } from './time-text.ts';
import { fill } from './words.ts';

/**
 * Makes the function that shows on a button how long it does nothing. `left` returns the seconds that are left, and
 * `waiting` is the text with `{time}` in it; `label` returns in the end.
 */
export function countdown(
  button: HTMLElement,
  { lang }: ChatTools,
  { label, waiting }: { readonly label: string; readonly waiting: string },
) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  return function draw(left: () => number): void {
    clearTimeout(timer);
    const seconds = left();
    setDisabled(button, seconds > 0);
    setText(button, seconds > 0 ? fill(waiting, { time: durationText(seconds, lang) }) : label);
    if (seconds > 0) timer = setTimeout(() => button.isConnected && draw(left), 1_000);
  };
}
