import { avatarOf, fillAvatar, type Looks } from './avatar.ts';
import type { ChatDependencies, Draft } from './chat-dependencies.ts';
import { chatHeader } from './chat-header.ts';
import { chatSide } from './chat-side.ts';
import { announcer, type ChatTools, onlyFirst } from './chat-tools.ts';
import { addFrom, composer } from './composer.ts';
import { askIn, closeDialog } from './dialog.ts';
import { newElement, setAttribute } from './dom.ts';
import { emptyState } from './empty-state.ts';
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
  /** Looks so from now on. Nothing that was said or written changes. */
  look(looks: Looks): void;
  /** Moves the focus to where the user writes, or signs in. */
  focus(): void;
  /** Begins a new chat, as the button does. */
  newChat(): void;
}

/** Makes the whole chat: list of chats, header, messages, the form for signing in, and the composer. */
export function chatView(dependencies: ChatDependencies): ChatView {
  const { channel, looks } = dependencies;
  const shown = chatElements(dependencies);
  const { element, side, header, empty, form, writer, region } = shown;
  const draw = drawing(dependencies, shown);
  const view: ChatView = {
    element,
    begin() {
      const ends = [channel.subscribe(draw), side?.begin()];
      draw();
      return () => {
        writer.clear();
        for (const end of ends) end?.();
      };
    },
    forget() {
      for (const part of [writer, form]) part.clear();
      // An announcement can be a whole answer.
      region.replaceChildren();
    },
    draft() {
      const { session } = channel.getSnapshot();
      return session ? { user: session.user.id, text: writer.draft() } : undefined;
    },
    look(next) {
      shown.looks.now = next;
      header.look(next);
      empty.look(next);
      for (const one of element.querySelectorAll('.avatar')) fillAvatar(one, next);
      writer.look(next);
    },
    focus: () => (channel.getSnapshot().session === null ? form.focus() : writer.focus()),
    newChat: shown.newChat,
  };
  view.look(looks);
  return view;
}

function chatElements(dependencies: ChatDependencies) {
  const { language, channel, hasChat, hasFiles } = dependencies;
  const { region, announce } = announcer();
  const looks = { now: dependencies.looks };
  const avatar = () => avatarOf(looks.now);
  const tools: ChatTools = { ...language, announce, isFirstPress: onlyFirst(), avatar };
  // Without the group `chat` there is no history, so nobody could go back to an earlier chat.
  const chats = hasChat ? dependencies.chats : undefined;
  const onSent = () => {
    writer.focus();
    log.scrollToEnd();
    scrollToEnd();
  };
  const onOpen = (isOther = true) => {
    // The files belong to the chat before.
    if (isOther) writer.clearFiles();
    onSent();
  };
  const beginNewChat = async () => {
    const { newChat: yes, newChatAsk: title, newChatNote, cancel: no } = tools.words;
    if (chats) {
      chats.begin();
      onOpen();
    } else if (await askIn(element, { title, content: [newChatNote], yes, no })) void channel.reset();
  };
  const maySend = () => {
    const isSignedIn = Boolean(channel.getSnapshot().session);
    if (!isSignedIn) form.focus();
    return isSignedIn;
  };
  const main = newElement('div', { class: 'main' });
  const newChat = () => void beginNewChat();
  const side = chats && chatSide({ tools, chats, channel, main, onOpen, onNewChat: newChat });
  const header = chatHeader({ ...dependencies, tools, showChats: side?.show, onNewChat: newChat });
  const log = messageLog({
    ...{ tools, channel, onSent, onEdit: (text) => writer.edit(text) },
    get botName() {
      return looks.now.title;
    },
  });
  const writer = composer({ ...dependencies, tools, draft: dependencies.draft?.text ?? '', maySend, onSent });
  const form = signInForm({ ...dependencies, tools });
  const empty = emptyState(tools, (text) => {
    if (!tools.isFirstPress() || !maySend()) return;
    void channel.send(text);
    onSent();
  });
  const loading = newElement('p', { class: 'note', part: 'note' }, tools.words.loading);
  main.append(header.element, header.why, log.element, loading);
  main.append(...[empty, form, writer].map((one) => one.element));
  const { lang, dir } = language;
  const parts = [...(side ? [side.element] : []), main, region];
  const element = newElement('div', { class: 'chat', lang, dir }, ...parts);
  element.addEventListener('click', ({ target }) => target === element && side?.closeSheet());
  // In a low window, the whole chat is scrolled.
  const scrollToEnd = keepAtEnd(main, log.element);
  if (hasFiles) takeDrops(element, tools.words.attach, writer.addFiles);
  const all = { element, side, header, log, loading, empty, form, writer, region };
  return { ...all, tools, looks, newChat };
}

/** Makes the function that shows what the channel has now. */
function drawing(
  { channel, mode, draft }: ChatDependencies,
  shown: ReturnType<typeof chatElements>,
): () => void {
  const { element, side, header, log, loading, empty, form, writer, tools } = shown;
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
    // It can name a chat of the user who has left, and is in the way of the form.
    if (!session || session.user.id !== (user ?? session.user.id)) closeDialog(element);
    const root = element.getRootNode();
    const hasFocus = () => (root instanceof ShadowRoot ? root.activeElement : null);
    const focused = hasFocus();
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
    side?.update(snapshot);
    log.update(messages);
    loading.hidden = session === null || !(isLoading || session === undefined);
    empty.element.hidden = !session || isLoading || messages.length > 0 || failedHistory !== undefined;
    // Who comes next to this device must not read it.
    log.element.hidden = session === null || messages.length === 0;
    // What was written before the session ended stays in sight.
    writer.element.hidden = !session && (user === undefined || writer.isEmpty());
    writer.update(snapshot);
    // An element that is hidden, or no longer there, loses the focus.
    if (!focused || (hasFocus() && !focused.closest('[hidden]'))) return;
    if (session === null) form.focus();
    else writer.focus();
  };
}

/** Takes files that are dropped anywhere in the chat. */
function takeDrops(element: HTMLElement, label: string, add: (files: Iterable<File>) => void): void {
  const mark = (isOver: boolean) => setAttribute(element, 'data-dropping', isOver ? label : undefined);
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
