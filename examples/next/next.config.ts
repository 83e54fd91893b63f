import type { NextConfig } from 'next';

const RELAY = 'http://localhost:3000';

const config: NextConfig = {
  rewrites: async () =>
    ['/auth/:path*', '/generic/:path*'].map((source) => ({ source, destination: RELAY + source })),
};

export default config;
