/** On a phone, the focus would open a keyboard that covers half of the page. */
export const HAS_KEYBOARD = matchMedia('(pointer: fine)').matches;
