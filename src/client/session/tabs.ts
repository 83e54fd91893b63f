import { baseOf, type CallsOptions } from '../transport/calls.ts';
import { randomId } from '../transport/random-id.ts';

/** Another tab or client of the page has learned who is signed in: the user's id, null after a sign-out. */
export type OnTold = (user: string | null, isSignIn: boolean) => void;

/** The other tabs of this browser, and the other clients of this page, at the same relay. */
export interface Tabs {
  /** Tells who is signed in; only changes are told, and sign-ins. */
  readonly tell: (user: string | null | undefined, isSignIn?: boolean) => void;
  /** The returned function ends it. */
  readonly listen: (onTold: OnTold) => () => void;
}

/** The tabs in which a client of these options can be. In Node.js there are none. */
export function tabsOf(options: CallsOptions): Tabs {
  const own = randomId();
  let last: string | null | undefined;
  const open = () =>
    // Node.js would not end as long as it is open.
    typeof location === 'object'
      ? new BroadcastChannel(`bot-relay ${new URL(baseOf(options) || '/', location.href)}`)
      : undefined;
  return {
    tell(user, isSignIn = false) {
      const isChange = user !== last;
      last = user;
      if (user === undefined || !(isChange || isSignIn)) return;
      const tabs = open();
      tabs?.postMessage([own, user, isSignIn]);
      tabs?.close();
    },
    listen(onTold) {
      const tabs = open();
      if (tabs)
        tabs.onmessage = ({ data: [from, user, isSignIn] }) => {
          if (from === own) return;
          last = user;
          onTold(user, isSignIn);
        };
      return () => tabs?.close();
    },
  };
}
