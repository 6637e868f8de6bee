"""What tests of Ottla, and of programs that use it, are built with: brokers (`broker`: a process of
its own, or one inside the test) and a simulated world (`simulation`). Nothing else imports it."""
