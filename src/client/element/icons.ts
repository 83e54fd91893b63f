const SVG = 'http://www.w3.org/2000/svg';

/** The lines of each icon in a box of 24 by 24. They are drawn, since not every device has a character for each. */
const LINES = {
  attach:
    'M20.5 11.5 12 20a5.3 5.3 0 0 1-7.5-7.5l8.7-8.7a3.5 3.5 0 0 1 5 5l-8.6 8.6a1.8 1.8 0 0 1-2.5-2.5l7.9-7.9',
  chats: 'M4 5h16v14H4zM9.5 5v14',
  check: 'm5 12.5 4.5 4.5L19 7.5',
  close: 'm6 6 12 12M18 6 6 18',
  copy: 'M9 9h11v11H9zM5.5 15H4V4h11v1.5',
  down: 'M12 5v14M6 13l6 6 6-6',
  edit: 'm5 15 10.5-10.5 4 4L9 19l-5 1zM13 7l4 4',
  file: 'M14 3H6v18h12V7zM14 3v4h4',
  more: 'M5.5 12h.01M12 12h.01M18.5 12h.01',
  newChat: 'M12 4.5H5v14.5h14.5V12M10 14l1-3.5 7.5-7.5 2.5 2.5-7.5 7.5z',
  regenerate: 'M19.5 8.5A8 8 0 1 0 20 13M20 4v5h-5',
  remove: 'M4 6.5h16M9 6V4h6v2M6.5 6.5 7.5 20h9l1-13.5M10 10.5v6M14 10.5v6',
  send: 'M12 19V5M6 11l6-6 6 6',
  signOut: 'M14 4h5v16h-5M4 12h10M10 8l4 4-4 4',
  stop: 'M7 7h10v10H7z',
  thumb:
    'M3 11h4v10H3zM7 20.5V11l4-8c1.6 0 2.6 1.3 2.2 3L12.5 9.5H19c1.5 0 2.4 1.3 2 2.7l-2 6.6c-.3 1-1.2 1.7-2.2 1.7z',
  tool: 'M14.5 6.5a4.5 4.5 0 0 0-5.8 5.8L4 17a2.1 2.1 0 0 0 3 3l4.7-4.7a4.5 4.5 0 0 0 5.8-5.8L15 12l-3-3z',
} as const;

/** The name of an icon. */
export type IconName = keyof typeof LINES;

/** A new icon. It has no name for screen readers: its button has one. */
export function icon(name: IconName): SVGElement {
  const element = document.createElementNS(SVG, 'svg');
  element.setAttribute('viewBox', '0 0 24 24');
  element.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', LINES[name]);
  element.append(path);
  return element;
}
