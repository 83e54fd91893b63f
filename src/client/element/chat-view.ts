import { avatarOf } from './avatar.ts';
import type { ChatDependencies, Draft } from './chat-dependencies.ts';
import { chatHeader } from './chat-header.ts';
import { announcer, type ChatTools, onlyFirst } from './chat-tools.ts';
import { addFrom, composer } from './composer.ts';
import { button, newElement, setText } from './dom.ts';
import { keepAtEnd, messageLog } from './message-log.ts';
import { signInForm } from './sign-in.ts';

/** A chat as the page shows it. */
export interface ChatView {
  readonly element: HTMLElement;
  /** Shows the channel from now on. The returned function ends that, and stops no run. */
  begin(): () => void;
  /** Forgets what the user who has left has written, attached and filled in. */
  forget(): void;
  /** The text that the user has written and not sent; undefined if nobody is signed in. */
  draft(): Draft | undefined;
}

/** Makes the whole chat: header, messages, the form for signing in, and the composer. */
export function chatView(dependencies: ChatDependencies): ChatView {
  const shown = chatElements(dependencies);
  const draw = drawing(dependencies, shown);
  return {
    element: shown.element,
    begin() {
      const end = dependencies.channel.subscribe(draw);
      draw();
      return () => {
        shown.writer.clear();
        end();
      };
    },
    forget() {
      for (const part of [shown.writer, shown.form]) part.clear();
      // An announcement can be a whole answer.
      shown.region.replaceChildren();
    },
    draft() {
      const { session } = dependencies.channel.getSnapshot();
      return session ? { user: session.user.id, text: shown.writer.draft() } : undefined;
    },
  };
}

function chatElements(dependencies: ChatDependencies) {
  const { language, channel, botName } = dependencies;
  const { region, announce } = announcer();
  const avatar = () => avatarOf({ title: botName, suggestions: [] });
  const tools: ChatTools = { ...language, announce, isFirstPress: onlyFirst(), avatar };
  const onSent = () => {
    writer.focus();
    log.scrollToEnd();
    scrollToEnd();
  };
  const onOpen = () => {
    // The files belong to the chat before.
    writer.clearFiles();
    onSent();
  };
  const header = chatHeader({ ...dependencies, tools, onOpen });
  const onEdit = (text: string) => writer.edit(text);
  const log = messageLog({ tools, channel, botName, onSent, onEdit });
  const maySend = () => {
    const isSignedIn = Boolean(channel.getSnapshot().session);
    if (!isSignedIn) form.focus();
    return isSignedIn;
  };
  const writer = composer({ ...dependencies, tools, draft: dependencies.draft?.text ?? '', maySend, onSent });
  const form = signInForm({ ...dependencies, tools });
  const empty = emptyState(dependencies, tools, (text) => {
    if (!tools.isFirstPress() || !maySend()) return;
    void channel.send(text);
    onSent();
  });
  const loading = newElement('p', { class: 'note', part: 'note' }, tools.words.loading);
  const element = newElement(
    'div',
    { class: 'chat', lang: language.lang, dir: language.dir },
    ...[header.element, log.element, loading, empty, form.element, writer.element, region],
  );
  // In a low window, the whole chat is scrolled.
  const scrollToEnd = keepAtEnd(element, log.element);
  if (dependencies.hasFiles) takeDrops(element, writer.addFiles);
  return { element, header, log, loading, empty, form, writer, region, tools };
}

/** Makes the function that shows what the channel has now. */
function drawing(
  { channel, mode, draft }: ChatDependencies,
  shown: ReturnType<typeof chatElements>,
): () => void {
  const { element, header, log, loading, empty, form, writer, tools } = shown;
  let user = draft?.user;
  let wasSignedIn = false;
  let chat: string | undefined;
  let hadMessages = false;
  function onUser(next: string): void {
    // A guest is another user in each session, but the same person: only the files are of the old one.
    if (user !== undefined && user !== next) {
      if (mode === 'guest') writer.clearFiles();
      else writer.clear();
    }
    user = next;
  }
  return () => {
    const snapshot = channel.getSnapshot();
    const { session, messages, isLoading, failedHistory } = snapshot;
    const root = element.getRootNode();
    const focused = root instanceof ShadowRoot ? root.activeElement : null;
    form.show(session === null, user !== undefined);
    if (session) onUser(session.user.id);
    // A session can end without an act of the user.
    if (wasSignedIn && session === null) {
      tools.announce(tools.words.signedOut);
      // In the next session, the same guest is another user, who cannot send these files.
      if (mode === 'guest') writer.clearFiles();
    }
    // Another element of the page may have opened another chat, or forgotten this one.
    if (chat && (chat !== channel.id || (hadMessages && messages.length === 0))) writer.clearFiles();
    chat = channel.id;
    hadMessages = messages.length > 0;
    if (session !== undefined) wasSignedIn = session !== null;
    header.update(snapshot);
    log.update(messages);
    loading.hidden = session === null || !(isLoading || session === undefined);
    empty.hidden = !session || isLoading || messages.length > 0 || failedHistory !== undefined;
    log.element.hidden = messages.length === 0;
    writer.element.hidden = !session && user === undefined;
    writer.update(snapshot);
    // An element that is hidden loses the focus.
    if (!focused?.closest('[hidden]')) return;
    if (session === null) form.focus();
    else writer.focus();
  };
}

function emptyState(
  { suggestions }: ChatDependencies,
  { words }: ChatTools,
  send: (text: string) => void,
): HTMLElement {
  const buttons = suggestions.map((text) =>
    newElement(
      'li',
      {},
      button(text, 'suggestion', () => send(text)),
    ),
  );
  const list = newElement('ul', { 'aria-label': words.suggestions }, ...buttons);
  const title = newElement('h3', {});
  setText(title, words.empty);
  return newElement('div', { class: 'empty', part: 'empty' }, title, ...(buttons.length > 0 ? [list] : []));
}

/** Takes files that are dropped anywhere in the chat. */
function takeDrops(element: HTMLElement, add: (files: Iterable<File>) => void): void {
  const mark = (isOver: boolean) => element.toggleAttribute('data-dropping', isOver);
  element.addEventListener('dragover', (event) => {
    event.preventDefault();
    mark(true);
  });
  element.addEventListener('dragleave', () => mark(false));
  element.addEventListener('drop', (event) => {
    mark(false);
    addFrom(event.dataTransfer, event, add);
  });
}
