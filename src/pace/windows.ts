/** The window of the limits on requests, in ms. A minute, as such limits are mostly stated. */
export const CLIENT_WINDOW_MS = 60_000;

/**
 * The window of the limits on failed sign-ins and on new guests, in ms. Ten minutes: guessing takes too long, and who
 * has forgotten a password need not wait for long.
 */
export const SIGN_IN_WINDOW_MS = 600_000;
