import type { NextConfig } from 'next';

const RELAY = 'http://localhost:3000';

const config: NextConfig = {
  rewrites: async () =>
    ['/auth', '/client', '/generic'].map((path) => ({
      source: `${path}/:path*`,
      destination: `${RELAY}${path}/:path*`,
    })),
};

export default config;
