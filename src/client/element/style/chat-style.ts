import { CODE } from './code.ts';
import { COMPOSER } from './composer.ts';
import { CONTROLS } from './controls.ts';
import { MESSAGES } from './messages.ts';
import { SHELL } from './shell.ts';
import { THEME } from './theme.ts';

let sheet: CSSStyleSheet | undefined;

/** The style sheet that all chats of a page share. */
export function chatStyle(): CSSStyleSheet {
  if (!sheet) {
    sheet = new CSSStyleSheet();
    sheet.replaceSync(THEME + CONTROLS + SHELL + MESSAGES + CODE + COMPOSER);
  }
  return sheet;
}
