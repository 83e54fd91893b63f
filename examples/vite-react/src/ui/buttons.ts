const SHAPE = 'inline-flex min-h-11 items-center justify-center gap-2 rounded-xl px-4 font-medium';

export const MAIN_BUTTON = `${SHAPE} bg-accent text-on-accent hover:opacity-90 disabled:opacity-50`;
export const DANGER_BUTTON = `${SHAPE} bg-bad text-page hover:opacity-90 disabled:opacity-50`;
export const OTHER_BUTTON = `${SHAPE} border border-line bg-raised hover:bg-bubble`;
