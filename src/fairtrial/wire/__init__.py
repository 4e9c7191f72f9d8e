"""HTTP/1.1 on loopback: forward, count, fault, record. Servers run in processes of their own."""
