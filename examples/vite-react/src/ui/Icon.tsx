const PATHS = {
  copy: 'M9 9h11v11H9zM15 9V4H4v11h5',
  done: 'm5 12.5 4.5 4.5L19 7.5',
  down: 'M12 5v14m-6-6 6 6 6-6',
  menu: 'M4 7h16M4 12h10M4 17h16',
  new: 'M12 5v14M5 12h14',
  regenerate: 'M19 12a7 7 0 1 1-2.2-5.1L19 9m0-5v5h-5',
  remove: 'M5 7h14M10 7V4h4v3m3 0-1 13H8L7 7',
  rename: 'm4 20 1-4L16 5l3 3L8 19zM14 7l3 3',
  send: 'M12 19V5m-6 6 6-6 6 6',
  signOut: 'M14 4H5v16h9M10 12h10m-3.5-3.5L20 12l-3.5 3.5',
  stop: 'M7 7h10v10H7z',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg
      viewBox="0 0 24 24"
      className={`size-5 ${name === 'stop' ? 'fill-current' : 'fill-none'}`}
      stroke="currentColor"
      strokeWidth="1.8"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
