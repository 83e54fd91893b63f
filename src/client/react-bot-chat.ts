import {
  type CSSProperties,
  createElement,
  type DetailedHTMLProps,
  forwardRef,
  type HTMLAttributes,
  useEffect,
  useImperativeHandle,
  useRef,
} from 'react';
import type { BotChatElement } from './element/bot-chat-element.ts';
import type { Session } from './session/session-tracker.ts';

/** What `<BotChat>` shows, and what it calls. */
export interface BotChatProps {
  /** The bot, as `namespace/name`. */
  readonly bot?: string | undefined;
  /** The relay, as the client's `baseUrl`. */
  readonly baseUrl?: string | undefined;
  /** The id of a conversation. Without it, the user has several chats. */
  readonly channel?: string | undefined;
  /** The language: that of the page by default. */
  readonly lang?: string | undefined;
  /** In place of the bot's name. */
  readonly heading?: string | undefined;
  /** In the empty text field. */
  readonly placeholder?: string | undefined;
  /** Questions to begin with. */
  readonly suggestions?: readonly string[] | undefined;
  /** `auto`, the default, is that of the page. */
  readonly theme?: 'auto' | 'light' | 'dark' | undefined;
  /** The address of a picture. */
  readonly logo?: string | undefined;
  /** The class of the element. */
  readonly className?: string | undefined;
  /** The style of the element. */
  readonly style?: CSSProperties | undefined;
  /** It is known who is signed in; null if nobody is. */
  readonly onReady?: ((session: Session | null) => void) | undefined;
  /** Something has failed. The chat shows it, too. */
  readonly onError?: ((error: Error) => void) | undefined;
  /** The session is over. */
  readonly onSignedOut?: (() => void) | undefined;
}

/** The element `<bot-chat>`, which is loaded when it is first shown. A server renders the empty element. */
export const BotChat = forwardRef<BotChatElement, BotChatProps>(function BotChat(
  { baseUrl, suggestions, className, onReady, onError, onSignedOut, ...attributes },
  ref,
) {
  const own = useRef<BotChatElement>(null);
  useImperativeHandle(ref, () => own.current as BotChatElement);
  useEffect(() => void import('./element/bot-chat.ts'), []);
  // React 18 has no events of such elements.
  useEffect(() => {
    const element = own.current;
    const listening = new AbortController();
    const { signal } = listening;
    element?.addEventListener('bot-ready', ({ detail }) => onReady?.(detail.session), { signal });
    element?.addEventListener('bot-error', ({ detail }) => onError?.(detail), { signal });
    element?.addEventListener('bot-signed-out', () => onSignedOut?.(), { signal });
    return () => listening.abort();
  });
  return createElement('bot-chat', {
    ...attributes,
    'base-url': baseUrl,
    suggestions: suggestions?.join('\n'),
    class: className,
    ref: own,
  });
});

/** The attributes of `<bot-chat>` in JSX. React 18 knows `class` alone. */
type BotChatAttributes = Omit<
  DetailedHTMLProps<HTMLAttributes<BotChatElement>, BotChatElement>,
  'className'
> &
  Pick<BotChatProps, 'bot' | 'channel' | 'heading' | 'theme' | 'logo'> & {
    readonly 'base-url'?: string | undefined;
    readonly placeholder?: string | undefined;
    readonly suggestions?: string | undefined;
    readonly class?: string | undefined;
  };

declare module 'react' {
  namespace JSX {
    interface IntrinsicElements {
      'bot-chat': BotChatAttributes;
    }
  }
}
